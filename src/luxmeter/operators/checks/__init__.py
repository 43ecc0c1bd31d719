"""Check operators: does this device, dtype or backend compute right?"""
