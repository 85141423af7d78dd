# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: n = sizes(2); x = normal
def program(n: Int64[Tensor, "1"], x: Float32[Tensor, "4 4"]):
    place = n[0].item()
    return torch.select(x, 0, place)
