"""What the figures carry: where the warm-up ends, how wide a median's interval is, what is faster."""
