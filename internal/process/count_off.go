//go:build !countstarts

package process

func countStart(*Process) {}

func countEnd(*Process) {}
