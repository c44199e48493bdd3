"""The lessons as a course: exercises to fill in, checks that answer in a sentence, and where a student stands."""
