# R: vectors, data frames, a linear model, text and lists. Prints what it found.
# Usage: --args ROWS
count <- as.integer(commandArgs(trailingOnly = TRUE)[1])
set.seed(3)
frame <- data.frame(
  group = sample(letters, count, replace = TRUE),
  x = rnorm(count), y = runif(count),
  text = sprintf("row %d of %d", sample(count), count)
)
frame$z <- 2 * frame$x - frame$y + rnorm(count, sd = 0.1)
model <- lm(z ~ x + y + group, data = frame)
means <- aggregate(cbind(x, y, z) ~ group, data = frame, FUN = mean)
parts <- strsplit(frame$text[1:(count / 4)], " ")
firsts <- vapply(parts, function(part) part[2], "")
pieces <- lapply(split(frame, frame$group), function(part) head(part[order(part$z), ], 100))
joined <- do.call(rbind, pieces)
wide <- merge(joined, means, by = "group")
side <- floor(sqrt(count / 2))
square <- matrix(frame$x[1:(side * side)], side)
cat(nrow(wide), length(unique(firsts)), signif(coef(model)[2:3], 6),
    signif(sum(means$z), 6), signif(sum(abs(square %*% square[, 1:9])), 6), "\n")
