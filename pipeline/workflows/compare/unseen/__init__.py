"""Families side by side on unseen labelled documents."""
