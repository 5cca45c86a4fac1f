#!/bin/sh
# assemble.sh PROGRAM OUT [DATA...]: lays out the root file system of the image: the program, the loader and the few libraries
# that it names, the CA roots, a user who is nobody in particular, and data files if any. Nothing else of the distribution.
set -eu
program=$1 out=$2
shift 2
mkdir -p "$out/etc/ssl/certs" "$out/tmp" "$out/usr/local/bin" "$out/data/mnist" "$out/runs"
# Without the tables that profilers read, which are six times the program.
strip -o "$out/usr/local/bin/salamander" "$program"
ldd "$program" | awk '/=> \//{print $3} /^\t\/lib/{print $1}' | while read -r library; do
    cp --parents -L "$library" "$out"
done
# Roots for object stores and registries over TLS.
cp -L /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
for file in "$@"; do
    if [ -f "$file" ]; then
        cp "$file" "$out/data/mnist/"
    else
        echo "no file $file: the image is without it" >&2
    fi
done
printf 'nonroot:x:65532:65532::/tmp:/sbin/nologin\n' > "$out/etc/passwd"
printf 'nonroot:x:65532:\n' > "$out/etc/group"
chmod 1777 "$out/tmp"
chown 65532:65532 "$out/runs"
