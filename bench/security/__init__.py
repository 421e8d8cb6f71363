"""The security suite: which defect of a program does which allocator catch?"""
