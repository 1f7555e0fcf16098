//go:build !race

package agentcache

const raced = false
