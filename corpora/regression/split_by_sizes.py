# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: n = sizes(4, 6); x = normal
def program(n: Int64[Tensor, "2"], x: Float32[Tensor, "10"]):
    a, b = n.tolist()
    first, second = torch.split(x, [a, b])
    return first, second
