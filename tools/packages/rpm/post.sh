# shellcheck shell=sh
# Compiles the modules of the command, so that they are not compiled at each start.
/usr/bin/python3 -m compileall -q /usr/share/allod/python >/dev/null 2>&1 || :
