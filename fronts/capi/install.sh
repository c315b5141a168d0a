#!/usr/bin/env bash
# Builds the C library and installs it: headers, shared and static library, pkg-config files.
#
#   fronts/capi/install.sh PREFIX            to PREFIX/include, PREFIX/lib and PREFIX/lib/pkgconfig
#   DESTDIR=ROOT fronts/capi/install.sh PREFIX   the same below ROOT, for packages
#   LIBDIR=DIR ...                           another directory than PREFIX/lib
#   QUIETLINE_PROFILE=PROFILE ...            another profile of Cargo.toml than "record"
set -euo pipefail

if [[ $# != 1 || $1 != /* ]]; then
    echo "usage: $0 PREFIX (an absolute path)" >&2
    exit 2
fi
prefix=$1
libdir=${LIBDIR:-$prefix/lib}
root=${DESTDIR:-}
profile=${QUIETLINE_PROFILE:-record}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

# The native libraries that the static one needs are the compiler's to say.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo rustc --profile "$profile" --locked -p quietline-capi --lib -- \
    --print "native-static-libs=$log"
native=$(cat "$log")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
target=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
[[ -n $native && -n $version ]]

install -d "$root$prefix/include" "$root$libdir/pkgconfig"
install -m 644 "$here"/include/quietline{.h,_inline.h,.hpp} "$root$prefix/include/"
install -m 644 "$target/$profile/libquietline.a" "$root$libdir/"
install -m 755 "$target/$profile/libquietline.so" "$root$libdir/libquietline.so.$version"
ln -sf "libquietline.so.$version" "$root$libdir/libquietline.so.1"
ln -sf libquietline.so.1 "$root$libdir/libquietline.so"
for name in quietline quietline-static; do
    sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|; s|@NATIVE@|$native|" \
        "$here/$name.pc.in" >"$root$libdir/pkgconfig/$name.pc"
done
