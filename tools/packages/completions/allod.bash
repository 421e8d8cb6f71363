# Completion of allod(1) in bash. The installed command says itself how it is completed, so that
# this fits any version of it.
eval "$(_ALLOD_COMPLETE=bash_source allod 2>/dev/null)"
