"""The default preset: H learns to fill hidden cells, G makes the cells' distributions a joint one."""
