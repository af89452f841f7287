"""The compiled inner loops. They know arrays only; each has a slow twin in tests/naive."""
