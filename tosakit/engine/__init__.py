"""Rules, transforms, contracts, and the driver that applies them."""
