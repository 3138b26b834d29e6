package wallclock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// code makes the system call clock_gettime, and adds seconds to what it answers for
// CLOCK_REALTIME.
func code(seconds int32) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, 228: clock_gettime
		0x0f, 0x05, //         syscall
		0x85, 0xff, //         test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x07, //         jne over the next one
		0x48, 0x81, 0x06, //   add qword [rsi], seconds
	}
	return append(binary.LittleEndian.AppendUint32(code, uint32(seconds)), 0xc3) // ret
}

// patch puts code in the place of the vDSO's clock_gettime.
func patch(seconds int32) error {
	from, to, err := vdso("self")
	if err != nil {
		return err
	}
	base := uintptr(from)
	// The kernel's memory, which Go neither moves nor frees.
	image := unsafe.Slice(*(**byte)(unsafe.Pointer(&base)), to-from)
	code := code(seconds)
	at, err := clockGettime(image, len(code))
	if err != nil {
		return err
	}
	if err := unix.Mprotect(image, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC); err != nil {
		return fmt.Errorf("the vDSO cannot be written: %w", err)
	}
	copy(image[at:], code)
	return unix.Mprotect(image, unix.PROT_READ|unix.PROT_EXEC)
}

// patchOther changes the seconds of a process that patch was called in.
func patchOther(pid int, seconds int32) error {
	from, to, err := vdso(strconv.Itoa(pid))
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, int64(from)); err != nil {
		return err
	}
	code := code(seconds)
	at, err := clockGettime(image, len(code))
	if err != nil {
		return err
	}
	const number = 14 // where the seconds begin
	if !bytes.HasPrefix(image[at:], code[:number]) {
		return errors.New("its clock is that of its host")
	}
	_, err = memory.WriteAt(code[number:], int64(from)+int64(at)+number)
	return err
}

// clockGettime is where in the vDSO that function is, which must have room for size bytes.
func clockGettime(image []byte, size int) (at uint64, err error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 {
		return 0, errors.New("the vDSO has no __vdso_clock_gettime")
	}
	if symbols[i].Size < uint64(size) {
		return 0, fmt.Errorf("clock_gettime of the vDSO has %d bytes, too few for %d", symbols[i].Size, size)
	}
	return symbols[i].Value, nil
}

// vdso is where a process has the vDSO in its memory.
func vdso(process string) (from, to uint64, err error) {
	maps, err := os.ReadFile("/proc/" + process + "/maps")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		place, ok := strings.CutSuffix(strings.TrimSpace(line), "[vdso]")
		if !ok {
			continue
		}
		begin, end, _ := strings.Cut(strings.Fields(place)[0], "-")
		if from, err = strconv.ParseUint(begin, 16, 64); err == nil {
			to, err = strconv.ParseUint(end, 16, 64)
		}
		return from, to, err
	}
	return 0, 0, errors.New("the process has no vDSO")
}
