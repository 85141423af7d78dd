# ddefuzz program v1
# inputs: i = index(100); t = normal
def program(i: Int64[Tensor, "u0=2048"], t: Float32[Tensor, "100 64"]):
    return torch.relu(torch.nn.functional.embedding(i, t))
