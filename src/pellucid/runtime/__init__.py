"""What every room stands on: device and precision, and the memory that steps return and need again."""
