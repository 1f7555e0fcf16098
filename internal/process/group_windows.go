package process

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// group is a job object: a process with all that it starts, whatever that does. The
// system ends it with its last handle, and so with this program, however that ends.
type group struct {
	job    windows.Handle
	leader uint32
}

// take puts a process that was started suspended into a job of its own, and has it run.
func (g *group) take(cmd *exec.Cmd) error {
	g.leader = uint32(cmd.Process.Pid)
	err := g.make()
	if err == nil {
		err = runSuspended(g.leader)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		g.close()
	}
	return err
}

func (g *group) make() error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("make a job object: %w", err)
	}
	g.job = job
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return fmt.Errorf("have a job object end its processes: %w", err)
	}
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, g.leader)
	if err != nil {
		return fmt.Errorf("open the process: %w", err)
	}
	defer func() { _ = windows.CloseHandle(process) }()
	if err := windows.AssignProcessToJobObject(job, process); err != nil {
		return fmt.Errorf("put the process into a job object: %w", err)
	}
	return nil
}

// runSuspended resumes the one thread that a process has that was started suspended.
func runSuspended(pid uint32) error {
	all, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer func() { _ = windows.CloseHandle(all) }()
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err := windows.Thread32First(all, &entry); ; err = windows.Thread32Next(all, &entry) {
		if err != nil {
			return fmt.Errorf("find the thread of process %d: %w", pid, err)
		}
		if entry.OwnerProcessID == pid {
			break
		}
	}
	thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
	if err != nil {
		return fmt.Errorf("open the thread of process %d: %w", pid, err)
	}
	defer func() { _ = windows.CloseHandle(thread) }()
	if _, err := windows.ResumeThread(thread); err != nil {
		return fmt.Errorf("run process %d: %w", pid, err)
	}
	return nil
}

// signal does what there is of signals: Ctrl-Break asks a console program to end, and a
// program that cannot be asked is ended.
func (g *group) signal(s syscall.Signal) error {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP:
		if windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.leader) == nil {
			return nil
		}
		return windows.TerminateJobObject(g.job, 1)
	case syscall.SIGKILL:
		return windows.TerminateJobObject(g.job, 1)
	}
	return errors.ErrUnsupported
}

func (g *group) resume() {}

func (g *group) kill() { _ = windows.TerminateJobObject(g.job, 1) }

func (g *group) close() {
	if g.job != 0 {
		_ = windows.CloseHandle(g.job)
	}
}

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP, HideWindow: true}
}

// startChild needs no guard: the job ends with this program.
func startChild(cmd *exec.Cmd) error { return cmd.Start() }

// leadTerminal does nothing: nobody makes terminals here.
func leadTerminal(*syscall.SysProcAttr) {}

func apart() *syscall.SysProcAttr { return nil }
