"""Conversion of output bytes to text: cleaning, rendering, searching, detecting secrets."""
