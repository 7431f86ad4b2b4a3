package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
)

// UnixMode is the mode of a socket file: its owner and group may connect.
const UnixMode fs.FileMode = 0o770

// unixListener listens on a Unix socket and removes the socket's file on Close
// if the path still leads to it: a successor may have taken the path over, and
// both may live for a while. Safe for concurrent use.
type unixListener struct {
	// Fixed after construction.
	*net.UnixListener
	path string
	file fs.FileInfo // what the path led to when we bound it

	once sync.Once
	err  error
}

// ListenUnix listens on path. With removeExisting whatever is at path is
// removed first, even the socket of a server that lives; a failure to remove it
// shows as the failure to listen. The socket's mode is UnixMode from the moment
// it exists, whatever the process's umask, which is not touched: it belongs to
// every goroutine at once.
//
// Close removes the socket's file if the path still leads to it. Accept returns
// a *net.UnixConn.
func ListenUnix(ctx context.Context, path string, removeExisting bool) (net.Listener, error) {
	var removeErr error
	if removeExisting {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			removeErr = err
		}
	}
	lc := net.ListenConfig{Control: limitMode}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on Unix socket %q: %w", path, errors.Join(cause(err), removeErr))
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		_ = l.Close()
		return nil, fmt.Errorf("listen on Unix socket %q: unexpected listener %T", path, l)
	}
	ul.SetUnlinkOnClose(false)
	u := &unixListener{UnixListener: ul, path: path}
	// The umask may have taken bits away; it cannot have added any.
	if err = os.Chmod(path, UnixMode); err == nil {
		u.file, err = os.Lstat(path)
	}
	if err != nil {
		_ = u.Close()
		return nil, fmt.Errorf("listen on Unix socket %q: %w", path, err)
	}
	return u, nil
}

// limitMode gives the socket its mode before it has a name: the kernel creates
// the file with the socket's own mode less the umask.
func limitMode(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(UnixMode.Perm())) }); cerr != nil {
		return cerr
	}
	return err
}

// Close removes the socket's file if it is still ours and stops listening.
// Connections that were accepted stay. Further calls return the same error.
func (u *unixListener) Close() error {
	u.once.Do(func() {
		// While the socket is open its inode cannot be given to another file.
		if now, err := os.Lstat(u.path); err == nil && u.file != nil && os.SameFile(now, u.file) {
			u.err = os.Remove(u.path)
		}
		u.err = errors.Join(u.err, u.UnixListener.Close())
	})
	return u.err
}

// cause drops what net and os put in front ("listen tcp ...", "open ..."), which
// the caller's own words repeat.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
