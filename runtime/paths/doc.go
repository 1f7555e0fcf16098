// Package paths replaces the paths of one machine by those of another in texts and in
// JSON, for sessions that travel.
//
// A path is replaced where it stands as a whole or as the beginning of another one:
// /home/al is in "/home/al/notes" and in `cd "/home/al"`, and not in /home/alice,
// /mnt/home/al or /home/al.old. Where several would fit, the longest counts.
package paths
