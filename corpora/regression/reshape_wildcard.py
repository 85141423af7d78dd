# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    kept = x[mask]
    return kept.reshape(-1), kept.view(-1, 2, 2)
