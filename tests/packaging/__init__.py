"""What a person installs."""
