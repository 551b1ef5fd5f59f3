"""Single decisions of the real PD, as records of its tests have them, beside the decisions of this package."""
