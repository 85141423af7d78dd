# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0=3 4"], y: Float32[Tensor, "u1=5 4"]):
    joined = torch.cat([x, y, x])
    return joined[1:], joined.mean(0)
