# shellcheck shell=sh
# Removes what was compiled, when the last version goes.
if [ "$1" = 0 ]; then
    find /usr/share/allod/python -name __pycache__ -prune -exec rm -rf {} +
fi
