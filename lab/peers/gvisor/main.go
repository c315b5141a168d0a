// The tmpfs of gVisor's sentry, by its own VFS layer and without a system call: what a path operation costs there.
//
// gVisor is a Go program, so it cannot be a column of `ql bench`, whose columns run in turns in one process. This runs by itself, the
// cases of `ql bench dcache open unlink` that it can do, and prints nanoseconds per operation of each thread, of the clock and of its
// CPU time: the median of the rounds, the least and the greatest. Run it right before or after `ql bench`, on the same quiet machine, and compare with care.
//
// Biases: the clock is one that stands still (gVisor's own reads the time for each file that is made); nobody watches by inotify; there is no
// system call, no descriptor table and no `Task` around it: an open file is a handle, as in the column `quietline-handle`. The garbage
// collector runs as it does by default, on whatever CPU is free.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/memutil"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// A filesystem, and who acts on it.
type world struct {
	ctx   context.Context
	creds *auth.Credentials
	vfs   *vfs.VirtualFilesystem
	root  vfs.VirtualDentry
}

// A context that knows its namespace, and counts who asks, as a task's does.
type inNamespace struct {
	context.Context
	namespace *vfs.MountNamespace
}

func (c *inNamespace) Value(key any) any {
	if key == vfs.CtxMountNamespace {
		c.namespace.IncRef()
		return c.namespace
	}
	return c.Context.Value(key)
}

// One operation, which says when it fails; and how many files it is.
type operation struct {
	run   func() error
	files int
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gvisor:", err)
		os.Exit(1)
	}
}

func newWorld() *world {
	fd, err := memutil.CreateMemFD("pages", 0)
	check(err)
	pages, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "pages"), pgalloc.MemoryFileOpts{})
	check(err)
	creds := auth.NewRootCredentials(auth.NewRootUserNamespace())
	values := map[any]any{
		auth.CtxCredentials:    creds,
		ktime.CtxRealtimeClock: &ktime.SyntheticClock{},
		pgalloc.CtxMemoryFile:  pages,
	}
	ctx := context.WithValues(context.Background(), values)
	all := &vfs.VirtualFilesystem{}
	check(all.Init(ctx))
	all.MustRegisterFilesystemType("tmpfs", tmpfs.FilesystemType{}, &vfs.RegisterFilesystemTypeOptions{AllowUserMount: true})
	namespace, err := all.NewMountNamespace(ctx, creds, "", "tmpfs", &vfs.MountOptions{}, nil)
	check(err)
	return &world{&inNamespace{ctx, namespace}, creds, all, namespace.Root(ctx)}
}

func (w *world) at(path string) *vfs.PathOperation {
	return &vfs.PathOperation{Root: w.root, Start: w.root, Path: fspath.Parse(path)}
}

func (w *world) following(path string) *vfs.PathOperation {
	at := w.at(path)
	at.FollowFinalSymlink = true
	return at
}

func (w *world) mkdir(path string) {
	err := w.vfs.MkdirAt(w.ctx, w.creds, w.at(path), &vfs.MkdirOptions{Mode: 0o755})
	if !linuxerr.Equals(linuxerr.EEXIST, err) {
		check(err)
	}
}

func (w *world) create(path string) error {
	flags := uint32(linux.O_CREAT | linux.O_EXCL | linux.O_RDWR)
	file, err := w.vfs.OpenAt(w.ctx, w.creds, w.at(path), &vfs.OpenOptions{Flags: flags, Mode: 0o644})
	if err == nil {
		file.DecRef(w.ctx)
	}
	return err
}

func (w *world) unlink(path string) error {
	return w.vfs.UnlinkAt(w.ctx, w.creds, w.at(path))
}

func (w *world) stat(path string) (uint64, error) {
	stat, err := w.vfs.StatAt(w.ctx, w.creds, w.following(path), &vfs.StatOptions{Mask: linux.STATX_BASIC_STATS})
	return stat.Ino, err
}

// A file with so many components, the first of which parts threads; made.
func (w *world) file(first string, depth int) string {
	path := first
	for i := 1; i < depth; i++ {
		w.mkdir(path)
		path += "/d" + strconv.Itoa(i)
	}
	if err := w.create(path); !linuxerr.Equals(linuxerr.EEXIST, err) {
		check(err)
	}
	return path
}

func (w *world) statFile(path string) operation {
	ino, err := w.stat(path)
	check(err)
	return operation{func() error {
		found, err := w.stat(path)
		if err == nil && found != ino {
			return fmt.Errorf("%s was file %d, and is file %d", path, ino, found)
		}
		return err
	}, 1}
}

func (w *world) openFile(path string) operation {
	return operation{func() error {
		file, err := w.vfs.OpenAt(w.ctx, w.creds, w.following(path), &vfs.OpenOptions{Flags: linux.O_RDONLY})
		if err == nil {
			file.DecRef(w.ctx)
		}
		return err
	}, 1}
}

// Making fails if the name is there, removing if it is not: each operation checks the one before.
func (w *world) files(directory string, thread, batch int) operation {
	w.mkdir(directory)
	names := make([]string, batch)
	for i := range names {
		names[i] = fmt.Sprintf("%s/t%d-%d", directory, thread, i)
	}
	return operation{func() error {
		for _, name := range names {
			if err := w.create(name); err != nil {
				return err
			}
		}
		for _, name := range names {
			if err := w.unlink(name); err != nil {
				return err
			}
		}
		return nil
	}, batch}
}

var cases = []struct {
	name string
	make func(w *world, thread int) operation
}{
	{"dcache stat-own-1", func(w *world, t int) operation { return w.statFile(w.file(own(t, 1), 1)) }},
	{"dcache stat-own-3", func(w *world, t int) operation { return w.statFile(w.file(own(t, 3), 3)) }},
	{"dcache stat-own-8", func(w *world, t int) operation { return w.statFile(w.file(own(t, 8), 8)) }},
	{"dcache stat-shared-3", func(w *world, _ int) operation { return w.statFile(w.file("shared", 3)) }},
	{"dcache stat-missing", func(w *world, _ int) operation {
		return operation{func() error {
			if _, err := w.stat("nothing"); !linuxerr.Equals(linuxerr.ENOENT, err) {
				return fmt.Errorf("nothing is there: %v", err)
			}
			return nil
		}, 1}
	}},
	{"open own-1", func(w *world, t int) operation { return w.openFile(w.file(own(t, 1), 1)) }},
	{"open own-3", func(w *world, t int) operation { return w.openFile(w.file(own(t, 3), 3)) }},
	{"open own-8", func(w *world, t int) operation { return w.openFile(w.file(own(t, 8), 8)) }},
	{"open shared", func(w *world, _ int) operation { return w.openFile(w.file("one", 1)) }},
	{"unlink own", func(w *world, t int) operation { return w.files(own(t, 0), t, 1) }},
	{"unlink shared", func(w *world, t int) operation { return w.files("all", t, 1) }},
	{"unlink own-1000", func(w *world, t int) operation { return w.files(own(t, 0), t, 1000) }},
	{"unlink shared-1000", func(w *world, t int) operation { return w.files("all", t, 1000) }},
}

func own(thread, depth int) string {
	return fmt.Sprintf("own-%d-%d", thread, depth)
}

// CPU nanoseconds that the thread has used; the garbage collector's threads are others.
func cpuTime() int64 {
	const thread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	check(syscall.Getrusage(thread, &usage))
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// Nanoseconds for each file of each thread, once: of the clock, and of the CPU.
func sample(operations []operation, length time.Duration) [2]float64 {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	each := make([][2]float64, len(operations))
	for thread, operation := range operations {
		ready.Add(1)
		done.Add(1)
		go func() {
			runtime.LockOSThread()
			defer done.Done()
			check(operation.run())
			ready.Done()
			<-start
			files, begun, used := 0, time.Now(), cpuTime()
			for {
				for i := 0; i < 64; i += operation.files {
					check(operation.run())
					files += operation.files
				}
				if took := time.Since(begun); took >= length {
					each[thread] = [2]float64{float64(took.Nanoseconds()) / float64(files), float64(cpuTime()-used) / float64(files)}
					return
				}
			}
		}()
	}
	ready.Wait()
	close(start)
	done.Wait()
	var mean [2]float64
	for _, ns := range each {
		mean[0] += ns[0] / float64(len(each))
		mean[1] += ns[1] / float64(len(each))
	}
	return mean
}

func spread(samples []float64) string {
	sort.Float64s(samples)
	last := len(samples) - 1
	return fmt.Sprintf("%.0f | %.0f..%.0f", samples[last/2], samples[0], samples[last])
}

func main() {
	threads := flag.String("n", "1,2", "thread counts")
	rounds := flag.Int("rounds", 15, "samples of each row")
	length := flag.Duration("sample", 30*time.Millisecond, "how long a sample takes")
	wanted := flag.String("case", "", "only cases whose names contain this")
	flag.Parse()
	fmt.Println("| case | threads | ns | min..max | CPU ns | min..max |\n|---|---|---|---|---|---|")
	for _, c := range cases {
		if !strings.Contains(c.name, *wanted) {
			continue
		}
		for _, text := range strings.Split(*threads, ",") {
			n, err := strconv.Atoi(text)
			check(err)
			w := newWorld()
			operations := make([]operation, n)
			for thread := range operations {
				operations[thread] = c.make(w, thread)
			}
			var wall, cpu []float64
			for range *rounds {
				ns := sample(operations, *length)
				wall, cpu = append(wall, ns[0]), append(cpu, ns[1])
			}
			fmt.Printf("| %s | %d | %s | %s |\n", c.name, n, spread(wall), spread(cpu))
		}
	}
}
