module speccompile

go 1.19
