"""The ops, one file each. Importing `msa_ops` imports them all and so registers them with torch and the registry."""
