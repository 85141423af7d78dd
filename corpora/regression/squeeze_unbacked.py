# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    column = x.unsqueeze(1)
    return column.squeeze(1), column.expand(-1, 3)
