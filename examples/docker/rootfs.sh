#!/bin/sh
# rootfs.sh PROGRAM OUT: makes in OUT/rootfs the root file system of an image that
# holds nothing but the gateway, and in OUT/state and OUT/workspace the folders that
# belong to the image's user. The build machine must have certificates.
set -eu

program=$1
out=$2
dir=$out/rootfs
uid=10001

mkdir -p "$dir/usr/local/bin" "$dir/etc/ssl/certs" "$dir/tmp" \
	"$out/state/home" "$out/state/data" "$out/workspace"
cp "$program" "$dir/usr/local/bin/sandbox-agent"
chmod 755 "$dir/usr/local/bin/sandbox-agent"
chmod 1777 "$dir/tmp"
chmod 700 "$out/state/home" "$out/state/data"

# Agents look up who they are, and ssh and git refuse to run as nobody.
printf 'root:x:0:0:root:/:/sbin/nologin\nagent:x:%d:%d:Sandbox Agent:/var/lib/sandbox-agent/home:/sbin/nologin\n' "$uid" "$uid" >"$dir/etc/passwd"
printf 'root:x:0:\nagent:x:%d:\n' "$uid" >"$dir/etc/group"

for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
	if [ -n "$bundle" ] && [ -f "$bundle" ]; then
		cp "$bundle" "$dir/etc/ssl/certs/ca-certificates.crt"
		exit 0
	fi
done
echo "rootfs.sh: this machine has no file of certificates; set SSL_CERT_FILE" >&2
exit 1
