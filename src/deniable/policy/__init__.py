"""What is protected, for whom, and how much: the values that one policy file becomes."""
