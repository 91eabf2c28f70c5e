// Package speccompile runs bundles over the C ABI (speccompile.h): a scheduler decodes the requests of all goroutines together.
//
//	bundle, err := speccompile.Open("build/demo", nil)
//	scheduler, err := bundle.Scheduler(nil)
//	request, err := speccompile.NewRequest("def main(")
//	submission, err := scheduler.Submit(request, nil)
//	for delta, err := submission.Next(); delta != nil; delta, err = submission.Next() { .. delta.Text .. }
package speccompile

/*
#cgo pkg-config: speccompile
#include <stdlib.h>
#include <speccompile.h>
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// Error says what went wrong. Kind: SPC_USAGE, SPC_BUNDLE, ..; Hint: what helps, "" where there is none.
type Error struct {
	Kind, ExitCode int
	Message, Hint  string
}

func (e *Error) Error() string { return e.Message }

// check returns what the library has refused, as an error.
func check(failed *C.spc_error) error {
	if failed == nil {
		return nil
	}
	defer C.spc_error_free(failed)
	return &Error{
		int(C.spc_error_kind(failed)), int(C.spc_error_exit_code(failed)),
		C.GoString(C.spc_error_message(failed)), C.GoString(C.spc_error_hint(failed)),
	}
}

// Options are names and values of the C ABI's functions, like {"threads": "2"}.
type Options map[string]string

// words returns names and values in turn, closed by NULL, and a function that frees them.
func (options Options) words() (**C.char, func()) {
	size := C.size_t(2*len(options)+1) * C.size_t(unsafe.Sizeof((*C.char)(nil)))
	list := (**C.char)(C.calloc(1, size))
	held := unsafe.Slice(list, 2*len(options)+1)
	next := 0
	for key, value := range options {
		held[next], held[next+1] = C.CString(key), C.CString(value)
		next += 2
	}
	return list, func() {
		for _, word := range held[:next] {
			C.free(unsafe.Pointer(word))
		}
		C.free(unsafe.Pointer(list))
	}
}

// Bundle is an open bundle, for any goroutine.
type Bundle struct{ handle *C.spc_bundle }

// Open opens a bundle's folder. options: see spc_bundle_open.
func Open(folder string, options Options) (*Bundle, error) {
	path := C.CString(folder)
	defer C.free(unsafe.Pointer(path))
	words, free := options.words()
	defer free()
	bundle := &Bundle{}
	if err := check(C.spc_bundle_open(path, words, &bundle.handle)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(bundle, func(b *Bundle) { C.spc_bundle_free(b.handle) })
	return bundle, nil
}

// Request is a prompt with its options, for one goroutine at a time.
type Request struct{ handle *C.spc_request }

// NewRequest returns a request with one prompt.
func NewRequest(prompt string) (*Request, error) {
	request := &Request{}
	if err := check(C.spc_request_create(&request.handle)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(request, func(r *Request) { C.spc_request_free(r.handle) })
	text := C.CString(prompt)
	defer C.free(unsafe.Pointer(text))
	return request, check(C.spc_request_add_text(request.handle, text, C.size_t(len(prompt))))
}

// SetNumber sets an option that is a number: temperature, top_p, ..
func (request *Request) SetNumber(option string, value float64) error {
	name := C.CString(option)
	defer C.free(unsafe.Pointer(name))
	defer runtime.KeepAlive(request)
	return check(C.spc_request_set_number(request.handle, C.SPC_ALL, name, C.double(value)))
}

// SetInteger sets an option that is an integer: max_new_tokens, seed, ..
func (request *Request) SetInteger(option string, value uint64) error {
	name := C.CString(option)
	defer C.free(unsafe.Pointer(name))
	defer runtime.KeepAlive(request)
	return check(C.spc_request_set_integer(request.handle, C.SPC_ALL, name, C.uint64_t(value)))
}

// SetConstraint binds what the new text has to be. kind: regex, json_schema, ..
func (request *Request) SetConstraint(kind, text string) error {
	name, content := C.CString(kind), C.CString(text)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(content))
	defer runtime.KeepAlive(request)
	return check(C.spc_request_set_constraint(request.handle, name, content, C.size_t(len(text))))
}

// Scheduler is a thread that decodes many requests at once, for any goroutine.
type Scheduler struct{ handle *C.spc_scheduler }

// Scheduler begins one. options: see spc_scheduler_create.
func (bundle *Bundle) Scheduler(options Options) (*Scheduler, error) {
	words, free := options.words()
	defer free()
	scheduler := &Scheduler{}
	if err := check(C.spc_scheduler_create(bundle.handle, words, &scheduler.handle)); err != nil {
		return nil, err
	}
	runtime.KeepAlive(bundle)
	runtime.SetFinalizer(scheduler, func(s *Scheduler) { C.spc_scheduler_free(s.handle) })
	return scheduler, nil
}

// Submit puts a request into the queue. terms: {"client": name}, {"salt": text}, {"reuse": "false"}.
func (scheduler *Scheduler) Submit(request *Request, terms Options) (*Submission, error) {
	words, free := terms.words()
	defer free()
	submission := &Submission{scheduler: scheduler}
	if err := check(C.spc_scheduler_submit(scheduler.handle, request.handle, words, &submission.handle)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(submission, func(s *Submission) { C.spc_submission_free(s.handle) })
	runtime.KeepAlive(request)
	return submission, nil
}

// Submission is a request that a scheduler has taken. What has not ended is cancelled once nobody holds it.
type Submission struct {
	handle    *C.spc_submission
	scheduler *Scheduler // which would cancel it at its own end
}

// Delta is new output of one sequence of a request.
type Delta struct {
	Sequence int
	Text     string
	Tokens   []int64
}

// Next waits for new output of any sequence. It returns nil after the last.
func (submission *Submission) Next() (*Delta, error) {
	var delta *C.spc_delta
	var done C.int
	err := check(C.spc_submission_next(submission.handle, -1, &delta, &done))
	runtime.KeepAlive(submission)
	if err != nil || delta == nil {
		return nil, err
	}
	defer C.spc_delta_free(delta)
	var text *C.char
	var size, count C.size_t
	var ids *C.int64_t
	C.spc_delta_text(delta, &text, &size)
	C.spc_delta_tokens(delta, &ids, &count)
	found := &Delta{int(C.spc_delta_sequence(delta)), C.GoStringN(text, C.int(size)), make([]int64, count)}
	for index, id := range unsafe.Slice(ids, int(count)) {
		found.Tokens[index] = int64(id)
	}
	return found, nil
}

// Cancel ends its sequences after the round in progress.
func (submission *Submission) Cancel() {
	C.spc_submission_cancel(submission.handle)
	runtime.KeepAlive(submission)
}
