"""Custom ops of any library: is the fake kernel right for every size, and is what the schema says so?"""
