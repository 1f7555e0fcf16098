package install

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// checkNamespaces starts a program in namespaces of its own, as sandboxes do.
// remedy is "" when that works.
func checkNamespaces(ctx context.Context) (found, remedy string) {
	program, err := exec.LookPath("true")
	if err != nil {
		return "whether they can be made is not known: there is no program to try it with", ""
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		return "user namespaces cannot be made: " + err.Error(), namespacesRemedy
	}
	// They can be made, but have no rights.
	b, _ := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if os.Getuid() != 0 && strings.TrimSpace(string(b)) == "1" {
		return "user namespaces have no rights here (kernel.apparmor_restrict_unprivileged_userns)", namespacesRemedy
	}
	return "user namespaces work", ""
}
