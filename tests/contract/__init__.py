"""The outside of the product, as the contract has it."""
