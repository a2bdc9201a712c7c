"""The agents' doors, one module per noun."""
