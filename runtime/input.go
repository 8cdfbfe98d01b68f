package runtime

import "os"

// feed copies the client's fifo to the process's stdin until the fifo's last writer is
// gone (the keeper is one until CloseStdin) or the process does not read any more. It
// owns fifo; dst is the process's pipe or its terminal. Bytes a process never asked for
// are nobody's loss, so errors end the feeding and are not reported.
func (io *IO) feed(fifo, dst *os.File) {
	defer closeAll(fifo)
	_ = io.pump(names[stdin]+nameFifo, &pump{src: fifo, dst: dst})
	if io.stopping() {
		return
	}
	// First the pipe, which is what the process waits for.
	if !io.stdio.Terminal {
		closeAll(dst)
		_ = io.d.Drop(io.key(names[stdin]))
	}
	_ = io.d.Drop(io.key(names[stdin] + nameHold))
	_ = io.d.Drop(io.key(names[stdin] + nameFifo))
}
