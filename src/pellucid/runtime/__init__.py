"""What every other room uses: device and precision, and memory that steps free and need again."""
