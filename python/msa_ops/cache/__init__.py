"""What the paged caches hold: pages, their members and bytes, pools, and how many sequences fit."""
