# Completion of allod(1) in fish. The installed command says itself how it is completed, so that this
# fits any version of it.
env _ALLOD_COMPLETE=fish_source allod 2>/dev/null | source
