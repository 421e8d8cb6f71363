# shellcheck shell=sh
/sbin/ldconfig || :
