"""OpenAI's completions API in front of trained runs, so that the programs written for it can call your models."""
