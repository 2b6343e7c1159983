"""What a step writes on nodes: state, taints, labels, and what it takes back."""
