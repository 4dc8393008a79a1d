"""Small reference models with hand-written discrete adjoints."""
