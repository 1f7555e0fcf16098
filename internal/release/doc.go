// Command release makes the files of a release:
//
//	sandbox-agent-OS-ARCH            a static program for each platform, with the page in it
//	sandbox-agent-OS-ARCH.cdx.json   what is in it, as CycloneDX 1.6
//	sandbox-agent-VERSION-OS-ARCH.tar.gz  both programs of a platform in an archive; for Windows a zip
//	*.tgz                            the packages for npm: one for each platform, and the two that people install
//	sandbox_agent-VERSION*           the packages for Python: a wheel, and the sources
//	install.sh                       what installs one of the programs
//	provenance.intoto.json           what they were made of, as a statement of in-toto
//	notes.md                         what has changed, from CHANGELOG.md
//	SHA256SUMS                       checksums of all of them
//
// With --publish it publishes them, and the image of examples/docker: a draft of the release
// first, the release last, so that nobody sees half of one. With --dry-run it says what is
// missing for that, and each command. The same sources and the same versions of Go and Node give
// the same bytes, wherever the sources lie: nothing in the files tells a path, a
// time or a machine.
//
// The files appear in the output folder when all of them are made; a release that
// failed leaves what was there.
package main
