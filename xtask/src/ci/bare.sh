# Runs a command where only a linker is left of what builds and runs C: in a mount namespace of its own.
set -eu

room=$1 # an empty folder; what is mounted on it goes with the namespace
shift
mount -t tmpfs none "$room"
touch "$room/nothing"
mkdir "$room/empty"
chmod 000 "$room/nothing"
count=0

libraries=(-name 'libibverbs*' -o -name 'librdmacm*' -o -name 'libclang*' -o -name 'libmlx[45]*')
library_folders() {
    find /lib /lib64 /usr/lib /usr/lib64 /usr/local/lib \( "${libraries[@]}" \) -prune -printf '%h\n' 2>/dev/null | sort -u
}

# A folder of links to all that it held but the libraries: a file that only could not be read would fail otherwise.
for folder in $(library_folders | xargs --no-run-if-empty realpath | sort -u); do
    count=$((count + 1))
    mkdir "$room/was$count" "$room/links$count"
    mount --bind "$folder" "$room/was$count"
    find "$room/was$count" -mindepth 1 -maxdepth 1 ! \( "${libraries[@]}" \) -exec ln -s -t "$room/links$count" {} +
    mount --bind "$room/links$count" "$folder"
done

for folder in /usr/include/infiniband /usr/include/rdma /usr/lib/llvm-*; do
    if [ -d "$folder" ]; then mount --bind "$room/empty" "$folder"; fi
done

IFS=:
for folder in $PATH; do
    for program in "$folder"/clang "$folder"/clang++ "$folder"/clang-[0-9]* "$folder"/cmake "$folder"/pkg-config \
        "$folder"/pkgconf "$folder"/llvm-config*; do
        if [ -f "$program" ]; then mount --bind "$room/nothing" "$program"; fi
    done
done
unset IFS

left=$(library_folders)
if [ -n "$left" ]; then
    echo "bare: libraries are still to be found in: $left"
    exit 1
fi
for program in clang cmake pkg-config; do
    if "$program" --version >/dev/null 2>&1; then
        echo "bare: $program still runs"
        exit 1
    fi
done

if [ -n "${SUDO_UID:-}" ]; then
    setpriv --reuid="$SUDO_UID" --regid="$SUDO_GID" --init-groups "$@"
else
    "$@"
fi
