// Command release makes the files of a release:
//
//	sandbox-agent-OS-ARCH            a static program for each platform, with the page in it
//	sandbox-agent-OS-ARCH.cdx.json   what is in it, as CycloneDX 1.6
//	install.sh                       what installs one of them
//	SHA256SUMS                       checksums of all of them
//
// It publishes nothing. The same sources and the same versions of Go and Node give
// the same bytes, wherever the sources lie: nothing in the files tells a path, a
// time or a machine.
//
// The files appear in the output folder when all of them are made; a release that
// failed leaves what was there.
package main
