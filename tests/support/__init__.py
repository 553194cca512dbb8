"""What tests share: real servers on loopback, doubles that are strict."""
