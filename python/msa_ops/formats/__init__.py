"""Number formats of caches and weights: E4M3, NVFP4, MXFP8, MXFP4, and the orders that their scales come in."""
