"""A server with OpenAI's completions API, so that programs written for it can call your models."""
